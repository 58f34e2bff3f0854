"""The folders of the stores: one for each lane beside the default one, whose store is in the state folder itself."""

from pathlib import Path

from agent.config.lanes import DEFAULT_LANE, is_name
from agent.store.files import use_mark
from agent.store.layout import FILE_NAME

LANES_FOLDER = "lanes"
"""The folder in the state folder with a store for each lane beside the default one."""


def lane_folders(state_folder: Path) -> dict[str, Path]:
    """Return the folders of the lanes' stores by the lanes' names, without that of the default lane.

    A store whose file is missing counts where its log or the mark of its use is there.
    """
    return {folder.name: folder for folder in _folders_with_store(state_folder) if is_name(folder.name)}


def foreign_folders(state_folder: Path) -> list[Path]:
    """Return the folders among those of the lanes that have a store, and a name that no lane can have."""
    return [folder for folder in _folders_with_store(state_folder) if not is_name(folder.name)]


def store_folders(state_folder: Path) -> dict[str, Path]:
    """Return the folders of all stores by the names of their lanes, the default lane first."""
    return {DEFAULT_LANE: state_folder, **lane_folders(state_folder)}


def _folders_with_store(state_folder: Path) -> list[Path]:
    lanes = state_folder / LANES_FOLDER
    found = sorted(lanes.iterdir()) if lanes.is_dir() else []
    return [folder for folder in found if (folder / FILE_NAME).exists() or use_mark.lacks_file(folder / FILE_NAME)]
