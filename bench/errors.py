"""Every failure a user can meet: each kind has its exit code, each message its cause and remedy."""

from __future__ import annotations


class BenchError(Exception):
    """A failure with one clear sentence: what is wrong and what to do about it."""

    exit_code = 1


class UsageError(BenchError):
    """A flag, name or combination that is not valid; the message lists what is."""

    exit_code = 2


class DeviceError(BenchError):
    """A device that is unknown, absent or cannot be used, or a package it needs is missing."""

    exit_code = 3


class Unsupported(DeviceError):
    """What a device or its libraries turn out not to have: a skip with its reason, no failure."""


class FileError(BenchError):
    """A file that is missing, corrupt, of another version or of another device."""

    exit_code = 4


class ResourceError(BenchError):
    """A folder, disk or memory that cannot hold what was asked, or a folder in use."""

    exit_code = 5


class VerificationError(BenchError):
    """A kernel whose result differs from its reference; it is never timed."""

    exit_code = 6


class NotConverged(BenchError):
    """With --strict: a ceiling whose interval stayed wider than its cap, or that carries no verdict."""

    exit_code = 7


class AuditMiss(BenchError):
    """A CUDA function whose machine code departs from what its kernel declares."""

    exit_code = 8


class CheckFailed(BenchError):
    """A check of gpu-check that failed on this machine."""

    exit_code = 9
