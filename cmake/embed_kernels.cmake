# cmake -D ROOT= -D UNITS=a.cu|b.cu -D HEADER= -D OUTPUT= -P embed_kernels.cmake
# Writes OUTPUT, a C file with the table flc_sources: the text of every unit of
# device code (UNITS, paths from ROOT), the headers that it includes, directly or
# through others, and a digest of all of them, which the keys of compiled kernels
# are made from. A header that no unit includes is not embedded. An include
# below `#ifndef __CUDACC_RTC__`, or the #else of its #ifdef, is for the host.
# NVRTC finds headers by the name in the #include line, so each line gets the
# path from ROOT in the embedded text.
cmake_minimum_required(VERSION 3.22)
string(REPLACE "|" ";" units "${UNITS}")
list(SORT units)
set(header_count 0)
set(texts "")

# What `file` includes as device code: "spelled|path from ROOT" for each.
function(find_includes file result)
  get_filename_component(folder ${ROOT}/${file} DIRECTORY)
  file(STRINGS ${ROOT}/${file} lines REGEX "^#[ ]*(if|el|endif|include[ ]+\")")
  set(found "")
  set(depth 0)
  set(host 0)   # the depth of the conditional that leaves device code out
  set(device 0) # the depth of the one that leaves host code out
  foreach(line IN LISTS lines)
    if(line MATCHES "^#[ ]*if")
      math(EXPR depth "${depth} + 1")
      if(NOT host AND line MATCHES "^#[ ]*ifndef[ ]+__CUDACC_RTC__")
        set(host ${depth})
      elseif(NOT host AND line MATCHES "^#[ ]*ifdef[ ]+__CUDACC_RTC__")
        set(device ${depth})
      endif()
    elseif(line MATCHES "^#[ ]*el")
      if(host EQUAL depth)
        set(host 0)
      elseif(device EQUAL depth)
        set(host ${depth})
        set(device 0)
      endif()
    elseif(line MATCHES "^#[ ]*endif")
      if(host EQUAL depth)
        set(host 0)
      elseif(device EQUAL depth)
        set(device 0)
      endif()
      math(EXPR depth "${depth} - 1")
    elseif(NOT host AND line MATCHES "^#[ ]*include[ ]+\"([^\"]+)\"")
      set(spelled ${CMAKE_MATCH_1})
      get_filename_component(path ${folder}/${spelled} ABSOLUTE)
      if(NOT EXISTS ${path})
        message(FATAL_ERROR "${file} includes ${spelled}, which does not exist")
      endif()
      file(RELATIVE_PATH path ${ROOT} ${path})
      list(APPEND found "${spelled}|${path}")
    endif()
  endforeach()
  list(REMOVE_DUPLICATES found)
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# Reads `file` once: text_<id> (includes by their paths), uses_<id> (the headers
# that it includes itself).
macro(read_source file)
  string(MAKE_C_IDENTIFIER ${file} id)
  if(NOT DEFINED text_${id})
    file(READ ${ROOT}/${file} text)
    find_includes(${file} found)
    set(uses_${id} "")
    foreach(pair IN LISTS found)
      string(REPLACE "|" ";" pair "${pair}")
      list(GET pair 0 spelled)
      list(GET pair 1 path)
      string(REPLACE "\"${spelled}\"" "\"${path}\"" text "${text}")
      list(APPEND uses_${id} ${path})
    endforeach()
    set(text_${id} "${text}")
  endif()
endmacro()

function(write_text symbol text)
  string(REPLACE "\\" "\\\\" text "${text}")
  string(REPLACE "\"" "\\\"" text "${text}")
  string(REPLACE "\n" "\\n\"\n\"" text "${text}")
  file(APPEND ${OUTPUT}.part "static const char ${symbol}[] =\n\"${text}\";\n")
endfunction()

file(WRITE ${OUTPUT}.part "/* Made by cmake/embed_kernels.cmake. */
#include \"${HEADER}\"

")
set(rows "")
set(names "")
foreach(unit IN LISTS units)
  read_source(${unit})
  string(MAKE_C_IDENTIFIER ${unit} unit_id)
  set(closure "")
  set(wanted ${uses_${unit_id}})
  set(all "${unit}\n${text_${unit_id}}")
  while(wanted)
    list(POP_FRONT wanted header)
    if(NOT header IN_LIST closure)
      read_source(${header})
      string(MAKE_C_IDENTIFIER ${header} header_id)
      if(NOT DEFINED written_${header_id})
        set(written_${header_id} 1)
        write_text(text_${header_id} "${text_${header_id}}")
      endif()
      list(APPEND closure ${header})
      list(APPEND wanted ${uses_${header_id}})
      string(APPEND all "${header}\n${text_${header_id}}")
    endif()
  endwhile()
  string(SHA256 digest "${all}")
  write_text(text_${unit_id} "${text_${unit_id}}")
  list(LENGTH closure count)
  set(header_names "")
  set(header_texts "")
  foreach(header IN LISTS closure)
    string(MAKE_C_IDENTIFIER ${header} header_id)
    string(APPEND header_names "\"${header}\", ")
    string(APPEND header_texts "text_${header_id}, ")
  endforeach()
  file(APPEND ${OUTPUT}.part
    "static const char *const names_${unit_id}[] = {${header_names}NULL};
static const char *const texts_${unit_id}[] = {${header_texts}NULL};
")
  get_filename_component(name ${unit} NAME_WE)
  if(name IN_LIST names)
    message(FATAL_ERROR "two units of device code are called ${name}.cu")
  endif()
  list(APPEND names ${name})
  string(APPEND rows "  {\"${name}\", \"${unit}\", text_${unit_id}, \"${digest}\", "
    "names_${unit_id}, texts_${unit_id}, sizeof text_${unit_id} - 1, ${count}},\n")
endforeach()
file(APPEND ${OUTPUT}.part "
const flc_source flc_sources[] = {
${rows}  {NULL, NULL, NULL, NULL, NULL, NULL, 0, 0}};
")
file(RENAME ${OUTPUT}.part ${OUTPUT})
