# zklock: distributed locks in SQL, through ZooKeeper
#
#   make, make install     build and install, as every extension does
#   make installcheck      regression and isolation tests in a running server
#                          that has zklock installed and zklock.servers set, as
#                          a superuser; with TAP_TESTS=1 also the tests of test/t
#   make check             sets everything up (packages too) and runs the tests, but those of
#                          make nightly; also those of large packages: make check PACKAGES=all
#   make nightly           what takes too long for that: whole models, torture, coverage,
#                          mutation, valgrind, others' programs, versions, packages, images;
#                          hours
#   make check-versions    the same as make check on each current release of Debian
#   make check-packages    builds the Debian package on each of them, installs it
#                          where there is no compiler, and uses it
#   make check-images      builds the container images, and runs the lines of compose.yaml,
#                          with Docker or, where it is not, podman
#   make soak              make check ten times on a busy machine, and a table of
#                          what failed how often; RUNS=10
#   make coverage          runs the tests of the C code, built to count, and tells which
#                          lines no test reaches
#   make mutation          do the tests notice small changes of the modules? Of those that
#                          their unit tests reach each one, of the others some by chance;
#                          some modules: make mutation MODULES="cycle src/lock"
#   make valgrind          runs the regression tests with a server under valgrind
#   make demo              sets everything up and shows what zklock does; the same over
#                          TLS: make demo TLS=1
#   make torture           sets everything up and runs zklock under faults, for
#                          an hour with: make torture DURATION=3600
#   make bench             sets everything up and measures zklock next to other
#                          locks; in two minutes with: make bench QUICK=1;
#                          crowds and storms: make bench SCALE=1; idle sessions:
#                          make bench IDLE=1; next to another build: make bench
#                          CHECK=revision; over TLS next to without: make bench TLS=1
#   make indent            lays out the C code as PostgreSQL's is, with pgindent
#   make dist              the sources as archives in .zklock/dist, to be built without git
#   make sbom              builds, and says what is linked: zklock.spdx.json
#
# Those from "make check" to "make dist" need nothing that is not there after git clone
# (but indent, its tools), so they must not depend on PGXS; PGXS has a "check" of its
# own besides, one that refuses.

OUR_GOALS = check nightly check-versions check-packages check-images coverage mutation \
	valgrind soak demo torture bench indent dist

# Where this file is: the source tree also in a VPATH build.
here := $(dir $(lastword $(MAKEFILE_LIST)))

ifneq (,$(filter $(OUR_GOALS),$(MAKECMDGOALS)))

ifneq (,$(filter-out $(OUR_GOALS),$(MAKECMDGOALS)))
$(error "make $(filter $(OUR_GOALS),$(MAKECMDGOALS))" goes alone, without other goals)
endif

# The last line of a test run is its result.
MAKEFLAGS += --no-print-directory

.PHONY: $(OUR_GOALS)
.NOTPARALLEL:

check nightly demo soak:
	@$(here)test/$@

coverage:
	@COVERAGE=1 $(here)test/check

mutation:
	@$(here)test/mutation/run $(MODULES)

valgrind:
	@SUITE=valgrind $(here)test/check

check-versions check-packages check-images:
	@$(here)test/$(@:check-%=%)

dist:
	@$(here)packages/dist

torture bench:
	@$(here)test/$@/run

# No package has them: they are in PostgreSQL's sources, src/tools/pgindent and
# src/tools/pg_bsd_indent (from release 16 on).  It leaves client.c as it is,
# whose compound literals it cannot read.
PGINDENT ?= pgindent
indent:
	@for tool in $(PGINDENT) pg_bsd_indent; do \
		command -v $$tool >/dev/null || { \
			echo "make indent: there is no $$tool in PATH, which comes with PostgreSQL's sources, src/tools" >&2; \
			exit 1; }; \
	done
	@$(PGINDENT) --typedefs=$(here)src/typedefs.list $(here)src

else

EXTENSION = zklock
# Those of all versions, and what leads from one to the next.
DATA = $(sort $(patsubst $(here)%,%,$(wildcard $(here)sql/zklock--*.sql)))
PGFILEDESC = "zklock - distributed locks through ZooKeeper"

MODULE_big = zklock
# The layers are the folders of src, from the top down.  A file sees the headers of its
# own folder and of those below: the compiler is told of no others (see INCLUDE below).
# Within a folder, too, a module includes only what stands below it, which "make check"
# holds it to.  src/README.md says what is in each.
LAYERS = functions lock lease queue ensemble names session common
OBJS = \
	src/functions/zklock.o \
	src/functions/lock_set.o \
	src/functions/inspect.o \
	src/functions/monitor.o \
	src/functions/runs.o \
	src/functions/holds.o \
	src/functions/requests.o \
	src/functions/leases.o \
	src/functions/check.o \
	src/functions/check_servers.o \
	src/functions/check_session.o \
	src/functions/check_settings.o \
	src/functions/check_row.o \
	src/functions/given_name.o \
	src/functions/args.o \
	src/lock/hold.o \
	src/lock/evict.o \
	src/lock/hooks.o \
	src/lock/cancel.o \
	src/lock/durable.o \
	src/lock/lock.o \
	src/lock/lock_proof.o \
	src/lock/lock_log.o \
	src/lock/lock_table.o \
	src/lease/lease_worker.o \
	src/lease/loss_notice.o \
	src/lease/lease_sweep.o \
	src/lease/brief_worker.o \
	src/lease/lease_take.o \
	src/lease/lease_renew.o \
	src/lease/lease_guard.o \
	src/lease/lease_node.o \
	src/lease/lease_known.o \
	src/lease/lease_names.o \
	src/queue/contender.o \
	src/queue/contender_watch.o \
	src/queue/contender_log.o \
	src/queue/contender_step.o \
	src/queue/order.o \
	src/queue/deadlock.o \
	src/queue/deadlock_graph.o \
	src/queue/deadlock_fact.o \
	src/queue/deadlock_local.o \
	src/queue/keep.o \
	src/queue/place.o \
	src/queue/loss.o \
	src/ensemble/run_once.o \
	src/ensemble/release_request_ask.o \
	src/ensemble/tree.o \
	src/ensemble/queue_list.o \
	src/ensemble/release_request.o \
	src/ensemble/expiry.o \
	src/ensemble/lease_roots.o \
	src/ensemble/nested.o \
	src/ensemble/take_rate.o \
	src/ensemble/root.o \
	src/ensemble/parents.o \
	src/ensemble/ephemeral.o \
	src/ensemble/sample.o \
	src/ensemble/removal.o \
	src/ensemble/roundtrip.o \
	src/ensemble/bounds.o \
	src/ensemble/row.o \
	src/ensemble/nodedata.o \
	src/names/name.o \
	src/names/name_allowed.o \
	src/names/name_spelling.o \
	src/session/session.o \
	src/session/session_interrupt.o \
	src/session/session_wait.o \
	src/session/session_error.o \
	src/session/session_current.o \
	src/session/session_news.o \
	src/session/session_loss.o \
	src/session/session_settings.o \
	src/session/handover.o \
	src/session/board.o \
	src/session/stat.o \
	src/session/auth.o \
	src/session/text.o \
	src/session/client.o \
	src/session/channel.o \
	src/common/answer.o \
	src/common/settings_page.o \
	src/common/protocol.o \
	src/common/keep_state.o \
	src/common/contact.o \
	src/common/cycle.o \
	src/common/bucket.o \
	src/common/name_pattern.o \
	src/common/recipe.o \
	src/common/recipe_node.o \
	src/common/recipe_name.o \
	src/common/servers.o \
	src/common/foreign.o

# The program that holds a backend's ZooKeeper session; nothing else is linked with
# ZooKeeper's client.  It is installed beside the library, which looks for it there.
# There is one without TLS, and one with it: it takes long to load OpenSSL.
PROGRAM_FILES = src/zklock-session src/zklock-session-tls
PROGRAM_OBJS = \
	src/program/program_main.o \
	src/program/program_ask.o \
	src/program/program_command.o \
	src/program/program_settings.o \
	src/program/program_pulse.o \
	src/program/program_idle.o \
	src/program/program_follow.o \
	src/program/program_step.o \
	src/program/program_library.o \
	src/program/program_request.o \
	src/program/program_connection.o \
	src/program/program_session.o \
	src/program/program_code.o \
	src/program/program_names.o \
	src/program/program_backend.o \
	src/program/program_time.o \
	src/common/settings_page.o \
	src/common/protocol.o \
	src/common/answer.o \
	src/common/keep_state.o \
	src/common/contact.o \
	src/common/recipe_node.o \
	src/common/servers.o
PLAIN_OBJS = \
	src/program/program_plain.o
TLS_OBJS = \
	src/program/program_tls.o \
	src/program/program_openssl.o

# All tests there are, in the order of their names. They lie in test/ and their
# expected output in expected/, which pg_regress looks for in its output
# directory; links lead it there (see REGRESS_PREP below).
REGRESS = $(sort $(patsubst $(here)test/sql/%.sql,%,$(wildcard $(here)test/sql/*.sql)))
REGRESS_OPTS = --inputdir=$(here)test --load-extension=zklock --no-locale --encoding=UTF8
ISOLATION = $(sort $(patsubst $(here)test/specs/%.spec,%,$(wildcard $(here)test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=$(here)test --load-extension=zklock --no-locale --encoding=UTF8
# What the server or its roles are set to otherwise.
installcheck: export PGOPTIONS := $(PGOPTIONS) -c default_transaction_isolation=read\ committed
REGRESS_PREP = expected-links
PROVE_TESTS = test/t/*.pl
# The link, never the directory of the source tree.
EXTRA_CLEAN = $(shell test -L expected && echo expected)

PG_CONFIG ?= pg_config
ifeq (,$(shell command -v $(PG_CONFIG)))
$(error $(PG_CONFIG) not found: install the package postgresql-server-dev-N, N being its release, or say "make check", which does it for you)
endif
PGXS := $(shell $(PG_CONFIG) --pgxs 2>/dev/null)
ifeq (,$(wildcard $(PGXS)))
$(error PostgreSQL's files for building extensions are missing: install the package postgresql-server-dev-N, N being its release, or say "make check", which does it for you)
endif

# PostgreSQL's headers as system headers: our warnings are not meant for them.
PG_CPPFLAGS = -isystem $(shell $(PG_CONFIG) --includedir-server)
PG_CFLAGS = -std=gnu11 -Wall -Wextra -Wno-unused-parameter $(if $(WERROR),-Werror)
# assert() of the session's program is looked at where the server's Assert() is, and in
# the builds of the tests (WERROR).
ifeq (,$(WERROR)$(shell grep -s '^.define USE_ASSERT_CHECKING 1' '$(shell $(PG_CONFIG) --includedir-server)/pg_config.h'))
PG_CPPFLAGS += -DNDEBUG
endif
# The same bytes wherever they are built; here may be the source tree, or leads there.
PG_CFLAGS += '-ffile-prefix-map=$(abspath $(here))=.' '-ffile-prefix-map=$(CURDIR)=.'
# Not by -fvisibility: before PostgreSQL 16 its macros mark nothing as visible.
SHLIB_LINK += -Wl,--version-script=$(here)src/zklock.map
EXTRA_CLEAN += $(PROGRAM_FILES) $(PROGRAM_OBJS) $(PLAIN_OBJS) $(TLS_OBJS)

include $(PGXS)

# Behind it, for it sets them itself.
PROVE_FLAGS += -I $(here)test/lib

all: $(PROGRAM_FILES)
$(MODULE_big).so: $(here)src/zklock.map
install: install-program install-pages
uninstall: uninstall-program uninstall-pages

# For the tests, which build it in other ways.
.PHONY: program-sources
program-sources:
	@printf '%s\n' $(patsubst %.o,%.c,$(PROGRAM_OBJS) $(PLAIN_OBJS))

src/zklock-session: $(PROGRAM_OBJS) $(PLAIN_OBJS)
	$(CC) $(CFLAGS) $^ $(LDFLAGS) $(LDFLAGS_EX) -lzookeeper_st -o $@

src/zklock-session-tls: $(PROGRAM_OBJS) $(TLS_OBJS)
	$(CC) $(CFLAGS) $^ $(LDFLAGS) $(LDFLAGS_EX) -lzookeeper_st -lssl -lcrypto -o $@

.PHONY: install-program uninstall-program
install-program: $(PROGRAM_FILES) installdirs
	$(INSTALL_PROGRAM) $(PROGRAM_FILES) '$(DESTDIR)$(pkglibdir)'

uninstall-program:
	rm -f $(patsubst src/%,'$(DESTDIR)$(pkglibdir)/%',$(PROGRAM_FILES))

# In a directory of their own, for they refer to one another by path, and names like
# README.md are everybody's.  The pages of src/ and test/ are for whoever has the source:
# what is installed names them, but has no links to them.
PAGES = README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE \
	docs/*.md docs/*.svg docs/*/*.md docs/*/*.svg docs/migrating/* docs/monitoring/* docs/recipes/*
pages_dir = $(DESTDIR)$(docdir)/extension/zklock

.PHONY: install-pages uninstall-pages
install-pages:
	@for page in $(sort $(patsubst $(here)%,%,$(wildcard $(addprefix $(here),$(PAGES))))); do \
		$(MKDIR_P) "$$(dirname '$(pages_dir)'/$$page)" && \
		$(INSTALL_DATA) '$(here)'$$page '$(pages_dir)'/$$page && \
		sed -i -E 's,\[([^]]*)\]\((\.\./)*(src|test)/[^)]*\),\1,g' '$(pages_dir)'/$$page || exit 1; \
		if test -x '$(here)'$$page; then chmod 755 '$(pages_dir)'/$$page || exit 1; fi; \
	done

uninstall-pages:
	rm -rf '$(pages_dir)'

.PHONY: sbom
EXTRA_CLEAN += zklock.spdx.json
sbom: all
	perl $(here)packages/sbom . zklock.spdx.json

# What a file of each folder sees besides its own folder's headers, which the compiler
# finds by itself.
INCLUDE = $(addprefix -I$(here)src/,$(1))
src/functions/%: override CPPFLAGS += $(call INCLUDE,lock lease queue ensemble names session common)
src/lock/%: override CPPFLAGS += $(call INCLUDE,lease queue ensemble names session common)
src/lease/%: override CPPFLAGS += $(call INCLUDE,queue ensemble names session common)
src/queue/%: override CPPFLAGS += $(call INCLUDE,ensemble names session common)
src/ensemble/%: override CPPFLAGS += $(call INCLUDE,names session common)
src/names/%: override CPPFLAGS += $(call INCLUDE,session common)
src/session/%: override CPPFLAGS += $(call INCLUDE,common)
src/program/%: override CPPFLAGS += $(call INCLUDE,common)

# PGXS knows no dependencies on headers.
$(OBJS) $(PROGRAM_OBJS) $(PLAIN_OBJS) $(TLS_OBJS) $(OBJS:.o=.bc): $(wildcard $(here)src/*/*.h)

# In a VPATH build there are no such folders yet. As absolute paths, or make would be
# content with those in the source tree.
FOLDERS = $(addprefix $(CURDIR)/src/,$(LAYERS) program)
$(OBJS) $(PROGRAM_OBJS) $(PLAIN_OBJS) $(TLS_OBJS) $(OBJS:.o=.bc): | $(FOLDERS)
$(FOLDERS):
	$(MKDIR_P) $@

# Say what is missing before the compiler says it at length.
$(filter src/program/%,$(PROGRAM_OBJS)) $(PLAIN_OBJS) $(TLS_OBJS): | zookeeper-headers
.PHONY: zookeeper-headers
zookeeper-headers:
	@echo '#include <zookeeper/zookeeper.h>' | $(CC) $(CPPFLAGS) -E -o /dev/null -x c - 2>/dev/null || \
	{ echo 'ZooKeeper'\''s C client is missing: install libzookeeper-st-dev, or say "make check", which does it for you' >&2; exit 1; }
	@echo '#include <openssl/ssl.h>' | $(CC) $(CPPFLAGS) -E -o /dev/null -x c - 2>/dev/null || \
	{ echo 'OpenSSL is missing: install libssl-dev, or say "make check", which does it for you' >&2; exit 1; }

.PHONY: expected-links
expected-links:
	@$(MKDIR_P) output_iso
	@ln -sfn '$(abspath $(here)expected)' output_iso/expected
	@test -d expected || ln -sfn '$(abspath $(here)expected)' expected

endif
