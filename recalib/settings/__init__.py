"""Every setting of Recalib: environment variables, secret files and one TOML file."""

from recalib.settings.settings import Settings

__all__ = ["Settings"]
