"""Code that the handlers of several APIs share: their context, levels of versions, and calls of coordinators and the controller."""
