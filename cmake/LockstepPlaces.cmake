# Where installed libraries and programs look for each other and for LibTorch. They may be moved as a whole: LibTorch is looked
# for beside the folder that they are in, as pip places it beside a wheel's, then in /opt/torch, then where the build found it,
# of which packages for other machines forget the last (cmake/make_relocatable.cmake).
set(LOCKSTEP_LIBRARY_RPATH "$ORIGIN;$ORIGIN/../../torch/lib;/opt/torch/lib;${LOCKSTEP_TORCH_ROOT}/lib")
set(LOCKSTEP_PROGRAM_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR};$ORIGIN/../../torch/lib;/opt/torch/lib;${LOCKSTEP_TORCH_ROOT}/lib")
