# Assertions stay on in optimised builds: a bug must stop, not train on.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

# House flags, on one INTERFACE target that every target of ours links.
add_library(pp_house INTERFACE)
target_compile_definitions(pp_house INTERFACE _POSIX_C_SOURCE=200809L PP_VERSION="${PROJECT_VERSION}")
target_compile_options(pp_house INTERFACE
  $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wmissing-prototypes -Wvla
  -ffp-contract=off -fno-omit-frame-pointer>)
target_compile_options(pp_house INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -fno-omit-frame-pointer>)
# clang warns of assert(!"text"), which is how a place that cannot be reached is marked.
target_compile_options(pp_house INTERFACE $<$<COMPILE_LANG_AND_ID:C,Clang>:-Wno-string-conversion>)
if(PP_WERROR)
  target_compile_options(pp_house INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
endif()
if(PP_SANITIZE)
  target_compile_options(pp_house INTERFACE
    $<$<COMPILE_LANGUAGE:C,CXX>:-Og -fsanitize=address,undefined -fno-sanitize-recover=all>)
  target_link_options(pp_house INTERFACE -fsanitize=address,undefined)
endif()
option(PP_FUZZ "Build libFuzzer programs (clang only)" OFF)
if(PP_FUZZ) # every room reports its coverage; only the fuzz programs themselves link the fuzzer
  target_compile_options(pp_house INTERFACE $<$<COMPILE_LANGUAGE:C>:-fsanitize=fuzzer-no-link>)
endif()

# pp_room(NAME DEPENDENCIES...): the static library of a room, made of every .c file in its folder and the folders in it.
function(pp_room name)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.c ${CMAKE_CURRENT_SOURCE_DIR}/*/*.c)
  list(FILTER sources EXCLUDE REGEX "^${CMAKE_CURRENT_SOURCE_DIR}/cuda/") # a library of its own
  foreach(main ${PP_ROOM_MAINS})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${main}.c)
  endforeach()
  add_library(pp_${name} STATIC ${sources})
  target_include_directories(pp_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_link_libraries(pp_${name} PUBLIC ${ARGN} PRIVATE pp_house)
endfunction()

# pp_tool(NAME ROOM...): an executable whose main is NAME.c in the current folder.
function(pp_tool name)
  add_executable(${name} ${name}.c)
  target_link_libraries(${name} PRIVATE ${ARGN} pp_house)
endfunction()
