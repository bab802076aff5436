# shellcheck shell=bash
# shellcheck disable=SC2154  # top is set by who sources it
# unit.sh: which modules the unit tests are linked with, and how they are compiled. For
# test/check and test/mutation/run.

c_flags=(-std=gnu11 -g -O1 -D_GNU_SOURCE= -Wall -Wextra -Wno-unused-parameter
	-Werror "-I$top/src")
instrument=(-fsanitize=address,undefined -fno-sanitize-recover=all
	-include "$top/test/unit/report_path.h")

# unit_sources TEST-SOURCE: set the array "sources" to the modules that it needs, first the
# one that it tests, and "libraries" to what it is linked with besides.
unit_sources() {
	local module
	libraries=()
	module=$(basename "$1" .c)
	module=${module#test_}
	sources=("$top/src/$module.c")
	case $module in
		client) sources+=("$top"/src/{keep_word,channel,protocol,contact}.c) ;;
		protocol) sources+=("$top"/src/{client,keep_word,channel,contact}.c) ;;
		program_session | program_step | program_move)
			sources+=("$top"/src/{program_request,program_follow,program_code,answer,protocol,keep_word}.c
				"$top"/src/{contact,recipe_node,servers,program_names,settings_page}.c)
			[[ $module == program_move ]] || sources+=("$top/src/program_move.c")
			[[ $module == program_step ]] || sources+=("$top/src/program_step.c")
			[[ $module == program_session ]] || sources+=("$top/src/program_session.c")
			;;
		program_tls)
			sources+=("$top"/src/{protocol,servers}.c)
			libraries=(-lssl -lcrypto -ldl)
			;;
		recipe) sources+=("$top"/src/{recipe_name,recipe_node,foreign}.c) ;;
	esac
}
