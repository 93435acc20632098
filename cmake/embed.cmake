# cmake -D FOLDER= -D PREFIX= -D SYMBOL= -D TYPE= -D HEADER= -D OUTPUT= [-D FILES=a|b] -P embed.cmake
# Writes OUTPUT, a C file with files as text, in an array SYMBOL of TYPE (a name,
# the file, its text and size) that ends with an empty row, sorted by file name.
# Without FILES: every Lua file below FOLDER, named as a module. With FILES:
# those, by their paths from FOLDER, named as they are called.
if(FILES)
  string(REPLACE "|" ";" files "${FILES}")
else()
  file(GLOB_RECURSE files RELATIVE ${FOLDER} ${FOLDER}/*.lua)
endif()
list(SORT files)

set(rows "")
set(texts "")
set(count 0)
foreach(file IN LISTS files)
  file(READ ${FOLDER}/${file} text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n\"" text "${text}")
  if(FILES)
    get_filename_component(module ${file} NAME)
  else()
    string(REGEX REPLACE "(/init)?\\.lua$" "" module ${file})
    string(REPLACE "/" "." module ${module})
  endif()
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
