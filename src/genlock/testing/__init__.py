"""Help for tests: the store contract, scenarios, a manual clock."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genlock.testing.contract import StoreContract as StoreContract


def __getattr__(name: str) -> Any:
    # Imported on demand: the contract needs pytest, the clock does not.
    if name == "StoreContract":
        from genlock.testing.contract import StoreContract

        return StoreContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
