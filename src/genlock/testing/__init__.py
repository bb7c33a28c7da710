"""What authors of stores, and of programs on Genlock, need for their tests: the store contract, scenarios, a clock to move by hand."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from genlock.testing.contract import StoreContract as StoreContract


def __getattr__(name: str) -> Any:
    # Imported when it is asked for: the contract needs pytest, the clock does not.
    if name == "StoreContract":
        from genlock.testing.contract import StoreContract

        return StoreContract
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
