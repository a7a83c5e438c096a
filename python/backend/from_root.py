"""The build of `pip install ./python`: that of the repository's root, whose pyproject.toml says all."""
import os
import pathlib

os.chdir(pathlib.Path(__file__).resolve().parents[2])

from scikit_build_core.build import *  # noqa: E402, F403
