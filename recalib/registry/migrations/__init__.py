"""Schema migrations, one file each; a released file is never edited."""
