"""The host: what its CPU is and may be used for, in which state it is, and who else is on it."""

from bench.host.probe import cpu_device
from bench.host.state import conditions, remarks
from bench.host.tenancy import login_node

__all__ = ["conditions", "cpu_device", "login_node", "remarks"]
