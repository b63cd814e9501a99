"""Sizes that products share with the register tiles that compute them."""

from __future__ import annotations

from kernels.spec import ITEM_BYTES

SINGLE, DOUBLE = ITEM_BYTES["fp32"], ITEM_BYTES["fp64"]
"""Bytes of an item of the convolution, and of the tall product."""

CHANNELS, WINDOW = 64, 3
"""Of the convolution: channels in and out, edge of the window."""

PIXEL = CHANNELS * SINGLE
"""Bytes of a pixel."""

SKINNY = 32
"""Columns of the tall product, on both sides."""

ROW = SKINNY * DOUBLE
"""Bytes of one of its rows."""
