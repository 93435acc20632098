# cmake -D FOLDER= -D PREFIX= -D SYMBOL= -D TYPE= -D HEADER= -D OUTPUT= -D PACK=
#   -P embed.cmake
# Writes OUTPUT, a C file with every Lua file below FOLDER as text, in an array
# SYMBOL of TYPE (the module's name, the file, its text, its size, and the bytes
# that it has in the array) that ends with an empty row, sorted by file name. With
# PACK the texts are compressed, as gzip does.
file(GLOB_RECURSE files RELATIVE ${FOLDER} ${FOLDER}/*.lua)
list(SORT files)

set(rows "")
set(texts "")
set(count 0)
foreach(file IN LISTS files)
  string(REGEX REPLACE "(/init)?\\.lua$" "" module ${file})
  string(REPLACE "/" "." module ${module})
  file(SIZE ${FOLDER}/${file} size)
  if(PACK)
    file(ARCHIVE_CREATE OUTPUT ${OUTPUT}.gz PATHS ${FOLDER}/${file}
      FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
    file(READ ${OUTPUT}.gz text HEX)
    # the time in bytes 5 to 8 of the header would differ in each build
    string(SUBSTRING "${text}" 0 8 head)
    string(SUBSTRING "${text}" 16 -1 text)
    string(PREPEND text "${head}00000000")
    string(REGEX REPLACE "(..)" "\\\\x\\1" text "${text}")
  else()
    file(READ ${FOLDER}/${file} text)
    string(REPLACE "\\" "\\\\" text "${text}")
    string(REPLACE "\"" "\\\"" text "${text}")
    string(REPLACE "\n" "\\n\"\n\"" text "${text}")
  endif()
  string(APPEND texts "static const char text${count}[] =\n\"${text}\";\n")
  string(APPEND rows "  {\"${PREFIX}${module}\", \"${file}\", "
    "text${count}, ${size}, sizeof text${count} - 1},\n")
  math(EXPR count "${count} + 1")
endforeach()
file(REMOVE ${OUTPUT}.gz)

file(WRITE ${OUTPUT} "/* Made by cmake/embed.cmake for ${SYMBOL}. */
#include \"${HEADER}\"

${texts}
const ${TYPE} ${SYMBOL}[] = {
${rows}  {NULL, NULL, NULL, 0, 0}};
")
