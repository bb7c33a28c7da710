"""A store made of files, beside other tools that read and write the same tasks."""

from genlock.stores.folder.open import open_folder as open_folder
from genlock.stores.folder.store import FolderStore as FolderStore
