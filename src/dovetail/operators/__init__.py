"""The join algorithms: one folder or file each, behind one protocol."""
