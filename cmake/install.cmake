# What goes where below the prefix. Everything finds its neighbours relative to
# itself, so an installed tree may be moved.
include(CMakePackageConfigHelpers)

set(FLARE_LUA_DIR ${CMAKE_INSTALL_DATAROOTDIR}/lua/5.4 CACHE STRING
  "Where Lua files go")
set(FLARE_LUA_MODULE_DIR ${CMAKE_INSTALL_LIBDIR}/lua/5.4 CACHE STRING
  "Where Lua modules in C go")
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/flare)
set(pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET core_module)
  install(TARGETS core_module LIBRARY DESTINATION ${FLARE_LUA_MODULE_DIR}/flare)
  if(TARGET mpi_module)
    install(TARGETS mpi_module LIBRARY DESTINATION ${FLARE_LUA_MODULE_DIR}/flare)
  endif()
  install(DIRECTORY stdlib/flare DESTINATION ${FLARE_LUA_DIR}
    FILES_MATCHING PATTERN *.lua)
endif()
if(FLARE_ROCK)
  return()
endif()
install(TARGETS flare)
# kernels compiled ahead, where ./bootstrap pack has made them
install(FILES ${PROJECT_BINARY_DIR}/flare.pack OPTIONAL
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/flare)
if(FLARE_PORTABLE)
  return()
endif()

install(TARGETS flare_shared flare_static flarelua_shared flarelua_static
  flare_system flare_modules EXPORT flare_targets)
# for editors: completion, arguments and comments of everything there is
install(FILES ${PROJECT_BINARY_DIR}/luacats/flare.lua
  DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/flare/luacats)
install(FILES ${public_headers} ${op_slots} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/flare)
install(DIRECTORY runtime/ops DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/flare
  FILES_MATCHING PATTERN *.def)
install(EXPORT flare_targets NAMESPACE flare:: DESTINATION ${package_dir})
configure_package_config_file(cmake/flareConfig.cmake.in flareConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(flareConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/flareConfig.cmake
  ${PROJECT_BINARY_DIR}/flareConfigVersion.cmake DESTINATION ${package_dir})

file(RELATIVE_PATH pc_to_prefix /${pc_dir} /)
string(REGEX REPLACE "/$" "" pc_to_prefix ${pc_to_prefix})
get_target_property(module_libs flare_modules pc_libs)
get_target_property(system_libs flare_system pc_libs)
if(NOT system_libs)
  set(system_libs "")
endif()
foreach(name flare flarelua)
  configure_file(cmake/${name}.pc.in ${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${pc_dir})
endforeach()
