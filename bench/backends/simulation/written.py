"""Reads a simulated device as people write it: YAML with numbers such as 1e9, no key twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from bench.errors import FileError


class Loader(yaml.SafeLoader):
    """YAML as people write numbers: 1e9 is a number (YAML 1.2), a key given twice is a mistake."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := {str(key) for key in keys if keys.count(key) > 1}:
            raise yaml.MarkedYAMLError(problem=f"given twice: {', '.join(sorted(twice))}")
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*\.?[\d_]*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)


def read(path: Path) -> Any:
    """What the file says; FileError when it cannot be read or is no such file."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader)
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise FileError(f"{path.name} is not valid YAML: {where}") from None
    except RecursionError:
        raise FileError(f"{path.name} is nested too deeply: a simulated device has two levels") from None
    except UnicodeDecodeError:
        raise FileError(f"{path.name} is not UTF-8 text: a simulated device is a YAML file") from None
    except OSError as error:
        raise FileError(
            f"cannot read the simulated device {path.name}: {error.strerror}; give a readable file"
        ) from None
