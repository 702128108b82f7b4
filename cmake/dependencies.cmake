# What we use beyond libc. The core (ir, grammar, codegen, compiler) needs nothing; tests need cmocka;
# the executor needs jansson to read JSON, and MPI for the mpi transport.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
endif()
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.9)

set(PP_FOUND_MPI "")
if(NOT PP_MPI STREQUAL "OFF")
  find_package(MPI COMPONENTS C)
  if(MPI_C_FOUND)
    set(PP_FOUND_MPI " mpi")
  elseif(PP_MPI STREQUAL "ON")
    message(FATAL_ERROR "PP_MPI=ON but no MPI was found: install libopenmpi-dev openmpi-bin, or mpich libmpich-dev")
  endif()
endif()
