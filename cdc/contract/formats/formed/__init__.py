"""Values in other forms than JSON has by default: the section ``values``. Pure."""
