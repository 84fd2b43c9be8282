"""Programs for the development of Ottla. The installed package contains none of them."""
