"""What a training step costs in each parallel mode, and what each trade of one cost for another buys.

Every mode and every trade is one transformation of the same few amounts: FLOP, bytes through memory, over the
network, and over the link behind the memory (`cost`). The measured rates turn them into time (`machine`).
"""
