# What `cmake --install` puts in place: the three tools, the samples, the manual.
install(TARGETS pipec pipedump piperun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET piperun_cuda)
  install(TARGETS piperun_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(DIRECTORY samples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/pipec/samples FILES_MATCHING PATTERN "*.pipe")
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")
