# cmake -D FOLDER= -D PREFIX= -D SYMBOL= -D TYPE= -D HEADER= -D OUTPUT= -P embed.cmake
# Writes OUTPUT, a C file with every Lua file below FOLDER as text, in an array
# SYMBOL of TYPE (the module's name, the file, its text and size) that ends with
# an empty row, sorted by file name.
file(GLOB_RECURSE files RELATIVE ${FOLDER} ${FOLDER}/*.lua)
list(SORT files)

set(rows "")
set(texts "")
set(count 0)
foreach(file IN LISTS files)
  file(READ ${FOLDER}/${file} text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n\"" text "${text}")
  string(REGEX REPLACE "(/init)?\\.lua$" "" module ${file})
  string(REPLACE "/" "." module ${module})
  string(APPEND texts "static const char text${count}[] =\n\"${text}\";\n")
  string(APPEND rows "  {\"${PREFIX}${module}\", \"${file}\", "
    "text${count}, sizeof text${count} - 1},\n")
  math(EXPR count "${count} + 1")
endforeach()

file(WRITE ${OUTPUT} "/* Made by cmake/embed.cmake for ${SYMBOL}. */
#include \"${HEADER}\"

${texts}
const ${TYPE} ${SYMBOL}[] = {
${rows}  {NULL, NULL, NULL, 0}};
")
