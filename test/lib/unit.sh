# shellcheck shell=bash
# shellcheck disable=SC2154  # top is set by who sources it
# unit.sh: which modules the unit tests are linked with, and how they are compiled. For
# test/check and test/mutation/run.

# Every folder: that a file includes nothing from above its own is for the Makefile.
include_flags=("-I$top"/src/{functions,lock,lease,queue,ensemble,names,session,common,program})

c_flags=(-std=gnu11 -g -O1 -D_GNU_SOURCE= -Wall -Wextra -Wno-unused-parameter
	-Werror "${include_flags[@]}")
instrument=(-fsanitize=address,undefined -fno-sanitize-recover=all
	-include "$top/test/unit/report_path.h")

# unit_sources TEST-SOURCE: set the array "sources" to the modules that it needs, first the
# one that it tests, and "libraries" to what it is linked with besides.
unit_sources() {
	local module needs=()
	libraries=()
	module=$(basename "$1" .c)
	module=${module#test_}
	case $module in
		client) needs=(keep_state channel protocol contact) ;;
		protocol) needs=(client keep_state channel contact) ;;
		program_session | program_step | program_settings)
			needs=(program_command program_pulse program_idle program_follow program_library
				program_request program_code program_backend program_time program_names answer
				protocol keep_state contact recipe_node servers settings_page)
			[[ $module == program_settings ]] || needs+=(program_settings)
			[[ $module == program_step ]] || needs+=(program_step)
			[[ $module == program_session ]] || needs+=(program_session)
			;;
		program_tls)
			needs=(program_openssl protocol servers)
			libraries=(-lssl -lcrypto)
			;;
		recipe) needs=(recipe_name recipe_node foreign) ;;
		name_pattern) needs=(recipe_name recipe_node foreign) ;;
	esac
	sources_of "$module" "${needs[@]}"
}

# sources_of MODULE...: set the array "sources" to their files, whose names are unique.
sources_of() {
	local module
	sources=()
	for module in "$@"; do
		sources+=("$top"/src/*/"$module.c")
	done
}
