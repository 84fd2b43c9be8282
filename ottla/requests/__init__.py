"""What the handlers of several APIs share: what they are given, levels of versions, and questions to coordinators and the controller."""
