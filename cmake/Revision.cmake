# Writes OUT, the source file that names the revision, where it says anything else than it should. Run by every build:
#   cmake -D SOURCE=... -D OUT=... -P Revision.cmake
# "-dirty" where what programs are made of differs from that revision; documents and stored results are not part of it.
set(built src apps cmake CMakeLists.txt CMakePresets.json ":(glob)bench/*.cpp" ":(glob)bench/*.cc" ":(glob)studies/**/*.[chi]*" ":(glob)studies/**/*.json")
set(revision unknown)
execute_process(COMMAND git rev-parse --short=7 HEAD WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE head
                RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT failed)
  execute_process(COMMAND git status --porcelain -- ${built} WORKING_DIRECTORY "${SOURCE}" OUTPUT_VARIABLE changed
                  RESULT_VARIABLE failed OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(failed)
    set(revision unknown)
  elseif(changed)
    set(revision "${head}-dirty")
  else()
    set(revision "${head}")
  endif()
endif()
set(text "namespace sluice {\nextern const char kRevision[];\nconst char kRevision[] = \"${revision}\";\n}  // namespace sluice\n")
if(EXISTS "${OUT}")
  file(READ "${OUT}" old)
endif()
if(NOT "${old}" STREQUAL "${text}")
  file(WRITE "${OUT}" "${text}")
endif()
