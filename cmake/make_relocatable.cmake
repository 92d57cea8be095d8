# Makes an installed tree one for other machines: its programs, its libraries and the files for builds with it forget
# where the build found LibTorch.
# Usage: cmake -D ROOT=FOLDER -D TORCH=FOLDER [-D PLACE=FOLDER] -P make_relocatable.cmake
# TORCH is where the build found it, PLACE where pkg-config says that it is: beside the tree, unless given.
cmake_minimum_required(VERSION 3.25)
if(NOT PLACE)
  set(PLACE "\${prefix}/../torch")
endif()

file(GLOB_RECURSE files "${ROOT}/*")
foreach(file IN LISTS files)
  if(NOT IS_SYMLINK "${file}" AND file MATCHES "/bin/|[.]so")
    file(READ "${file}" head LIMIT 4 HEX)
    if(head STREQUAL "7f454c46")
      file(READ_ELF "${file}" RUNPATH runpath CAPTURE_ERROR ignored)
      if(";${runpath};" MATCHES ";${TORCH}/lib;")
        list(REMOVE_ITEM runpath "${TORCH}/lib")
        list(JOIN runpath ":" runpath)
        file(RPATH_SET FILE "${file}" NEW_RPATH "${runpath}")
      endif()
    endif()
  elseif(file MATCHES "/(lockstepConfig[.]cmake|lockstep[.]pc)$")
    file(READ "${file}" text)
    string(REPLACE "(LOCKSTEP_BUILT_WITH_TORCH \"${TORCH}\")" "(LOCKSTEP_BUILT_WITH_TORCH \"\")" text "${text}")
    string(REPLACE "torch=${TORCH}" "torch=${PLACE}" text "${text}")
    file(WRITE "${file}" "${text}")
  endif()
endforeach()
