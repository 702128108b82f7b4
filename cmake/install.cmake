# What `cmake --install` puts in place: the three tools, the samples, the manual.
include(GNUInstallDirs)
install(TARGETS pipec pipedump piperun RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY samples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/pipec/samples FILES_MATCHING PATTERN "*.pipe")
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md")
