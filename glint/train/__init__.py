"""The trainers: next-byte pretraining, and reinforcement learning with executable rewards."""
