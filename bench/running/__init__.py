"""How a plan is carried out: rounds in fresh processes under a watchdog, inside the time box."""
