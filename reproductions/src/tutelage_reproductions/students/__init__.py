"""Students and rules of the papers that no release needs: networks, self-training, binary experts, siamese networks."""
