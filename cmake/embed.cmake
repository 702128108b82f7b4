# cmake -DROOT=FOLDER -DFILES="a;b" -DOUTPUT=FILE.c -P embed.cmake
# Write the files (paths relative to ROOT) as the table pp_library of compiler/library.h. Bytes, not string literals:
# those have a length limit in C.
set(arrays "")
set(rows "")
set(count 0)
foreach(file ${FILES})
  file(READ ${ROOT}/${file} hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${hex}")
  string(REGEX REPLACE "(('[^']*',)('[^']*',)('[^']*',)('[^']*',)('[^']*',)('[^']*',)('[^']*',)('[^']*',))" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "static const char file_${count}[] = {\n${bytes}0};\n")
  string(APPEND rows "\t{\"${file}\", file_${count}},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE ${OUTPUT} "/* Made from compiler/lib by cmake/embed.cmake. */\n#include \"compiler/library.h\"\n\n${arrays}\n"
  "const struct pp_library_file pp_library[] = {\n${rows}};\nconst size_t pp_library_count = ${count};\n")
