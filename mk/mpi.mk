# mpi.mk - all-reduce by Open MPI, a plug-in that the program opens at run time.

MPICC := $(shell command -v mpicc)
MPI_PLUGIN := $(if $(MPICC),$(dir $(PROGRAM))liblanyard_mpi.so,no-mpi)

no-mpi:
	@echo "no mpicc (tools/setup mpi): liblanyard_mpi.so is left out; network.collective \"mpi\" will not work"
$(dir $(PROGRAM))liblanyard_mpi.so: edge_worker/collective/mpi/ew_mpi_plugin.c runtime/rt_status.c runtime/rt_base.c \
  edge_worker/collective/ew_collective.h $(DIR)/flags
	@echo "link $@"
	$(Q)OMPI_CC="$(CC)" mpicc $(CFLAGS) $(SANITIZE) $(WARNINGS) -I. -fPIC -fvisibility=hidden -shared $(filter %.c,$^) -o $@
