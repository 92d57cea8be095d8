// Includes nothing itself: all of lockstep and LibTorch is there before the first line.
int main() { return lockstep::Communicator().size() == 1 && torch::ones(3).numel() == 3 ? 0 : 1; }
