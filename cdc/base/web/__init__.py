"""What services over HTTP share: who may ask, and what is answered to those who may not."""
