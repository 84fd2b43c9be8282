"""Programs for those who build Ottla; none of them is part of the installed package."""
