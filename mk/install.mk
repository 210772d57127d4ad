# install.mk - where everything goes: make install, Debian's packages, an image.

PREFIX := /usr/local
DESTDIR :=
LIBDIR = $(PREFIX)/lib
UNITDIR = $(PREFIX)/lib/systemd/system
INTO = $(DESTDIR)$(PREFIX)
DOCS := README.md LICENSE CHANGELOG.md $(filter-out docs/README.md,$(wildcard docs/*.md))
UNITS := $(wildcard configs/systemd/*.service)
PLUGINS = $(wildcard build/liblanyard_*.so)
# Made by the program itself from its tables: manual pages, and what shells read.
PAGES := build/pages
BASH_DIR = $(PREFIX)/share/bash-completion/completions
ZSH_DIR = $(PREFIX)/share/zsh/site-functions

pages: $(PAGES)/made
$(PAGES)/made: $(PROGRAM)
	@rm -rf $(PAGES) && mkdir -p $(PAGES)/man
	$(Q)$(PROGRAM) help --man $(PAGES)/man
	$(Q)$(PROGRAM) help --completion bash >$(PAGES)/lanyard
	$(Q)$(PROGRAM) help --completion zsh >$(PAGES)/_lanyard
	@touch $@

install: program library pages ## install under PREFIX=/usr/local, below DESTDIR if that is given
	install -d $(addprefix $(INTO)/,bin include lib/lanyard share/lanyard share/doc/lanyard/results share/doc/lanyard/pictures share/man/man1 share/man/man5) \
	  $(addprefix $(DESTDIR),$(LIBDIR) $(UNITDIR) $(BASH_DIR) $(ZSH_DIR))
	install -m 755 $(PROGRAM) $(INTO)/bin/lanyard
	install -m 755 tools/lanyard-parquet $(INTO)/bin/lanyard-parquet
	install -m 644 build/liblanyard.so $(DESTDIR)$(LIBDIR)/liblanyard.so.$(LIB_ABI)
	ln -sf liblanyard.so.$(LIB_ABI) $(DESTDIR)$(LIBDIR)/liblanyard.so
	install -m 644 build/liblanyard.a $(DESTDIR)$(LIBDIR)
	install -m 644 edge_worker/predict/lanyard.h $(INTO)/include
	install -m 755 tools/read_model.py $(INTO)/lib/lanyard
	$(if $(PLUGINS),install -m 644 $(PLUGINS) $(INTO)/lib/lanyard)
	install -m 644 $(UNITS) $(DESTDIR)$(UNITDIR)
	sed -i 's,/usr/local/bin/,$(PREFIX)/bin/,' $(addprefix $(DESTDIR)$(UNITDIR)/,$(notdir $(UNITS)))
	cp -r configs $(INTO)/share/lanyard
	install -m 644 $(DOCS) $(INTO)/share/doc/lanyard
	install -m 644 docs/results/*.md docs/results/*.svg $(INTO)/share/doc/lanyard/results
	install -m 644 docs/pictures/*.png $(INTO)/share/doc/lanyard/pictures
	install -m 644 $(PAGES)/man/*.1 $(INTO)/share/man/man1
	install -m 644 $(PAGES)/man/*.5 $(INTO)/share/man/man5
	install -m 644 $(PAGES)/lanyard $(DESTDIR)$(BASH_DIR)/lanyard
	install -m 644 $(PAGES)/_lanyard $(DESTDIR)$(ZSH_DIR)/_lanyard

uninstall: ## remove what make install put there, with the same PREFIX and DESTDIR
	rm -f $(INTO)/bin/lanyard $(INTO)/bin/lanyard-parquet $(INTO)/include/lanyard.h $(addprefix $(DESTDIR)$(LIBDIR)/,liblanyard.a liblanyard.so liblanyard.so.*) \
	  $(addprefix $(DESTDIR)$(UNITDIR)/,$(notdir $(UNITS))) $(DESTDIR)$(BASH_DIR)/lanyard $(DESTDIR)$(ZSH_DIR)/_lanyard \
	  $(addprefix $(INTO)/share/man/,man1/lanyard.1 man1/lanyard-*.1 man5/lanyard-config.5)
	rm -rf $(addprefix $(INTO)/,lib/lanyard share/lanyard share/doc/lanyard)

BASE :=
VERSION := $(shell awk '/define RT_PROGRAM_VERSION/ { gsub(/"/, "", $$3); print $$3 }' runtime/rt_build.h)
# Debian's packages, of what is compiled already.
deb: program library pages ## build Debian packages in build/deb; lanyard-cuda where nvcc is
	@tools/setup deb
	$(if $(NVCC),,@echo "no nvcc: lanyard-cuda is left out")
	@COMMIT="$(COMMIT)" CUDA=$(if $(NVCC),yes) tools/make_deb $(DIR)
deb-test: program library pages ## those packages and the image in a clean Debian: installed, run, upgraded, purged (needs root and a network)
	@tools/setup deb deb-test
	@DEBIAN=yes tests/install/test_deb
image: ## build an image of Containerfile with buildah: lanyard:latest
	buildah build $(if $(BASE),--build-arg BASE=$(BASE)) --build-arg COMMIT="$(COMMIT)" -t lanyard:$(VERSION) -t lanyard:latest .
