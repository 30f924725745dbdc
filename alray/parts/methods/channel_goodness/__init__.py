"""Channel-wise competitive learning (CwComp): each class has a group of channels, whose squares compete."""
