"""Compile the modules on an event's path, and our extensions, where ONCEGATE_COMPILE is 1; otherwise add nothing."""

import os
import tomllib
from pathlib import Path
from typing import Any

from setuptools import Distribution, Extension, setup
from setuptools.command.build_ext import build_ext

PROJECT = tomllib.loads(Path("pyproject.toml").read_text())
COMPILED = PROJECT["tool"]["oncegate"]["compiled"]


class CompiledDistribution(Distribution):
    """A distribution for one platform, although its extensions are known only after their translation to C."""

    def has_ext_modules(self) -> bool:
        return True


class CompileModules(build_ext):
    """Translates the modules when the wheel is built, and not whenever its metadata are read."""

    def run(self) -> None:
        # Extensions beside the sources of an editable installation would hide every later change of these.
        if self.editable_mode or self.inplace:
            return
        from mypyc.build import mypycify  # a requirement of this build only

        modules = [f"{package}.{name}" for package, names in COMPILED["modules"].items() for name in names]
        translated = mypycify(
            ["--follow-imports=silent", *(f"{module.replace('.', '/')}.py" for module in modules)],
            group_name=COMPILED["library"],
            target_dir=self.build_temp,
            debug_level="0",  # tracebacks need none
        )
        # Debug information would name the folder of the build.
        sources = {name: [f"{name.replace('.', '/')}.c"] for name in COMPILED["extensions"]}
        written = [Extension(name, files, extra_compile_args=["-g0"]) for name, files in sources.items()]
        self.distribution.ext_modules = [*translated, *written]
        self.distribution.reinitialize_command(self).ensure_finalized()
        super().run()


def options() -> dict[str, Any]:
    """Return the arguments of `setup` that a compiled build adds."""
    if os.environ.get("ONCEGATE_COMPILE") != "1":
        return {}
    # The compiler reads the types of what the modules import, so these packages are needed as well.
    return {
        "distclass": CompiledDistribution,
        "cmdclass": {"build_ext": CompileModules},
        "setup_requires": [*COMPILED["requires"], *PROJECT["project"]["dependencies"]],
    }


setup(**options())
