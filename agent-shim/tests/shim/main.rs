//! The shim and the mounter as a library: with a mounter in memory, and on real disks.

mod change_list;
mod crash_points;
mod csi;
mod decide_orphan;
mod decide_provision;
mod decide_publish;
mod fixtures;
mod generated;
mod host_root;
mod host_source;
mod hostile_input;
mod hung_up;
mod liveness;
mod loans;
mod node_restart;
mod orphans;
mod overlay;
mod provisioning;
mod quota;
mod read_only;
mod real_disk;
mod required_tasks;
mod skip;
mod test_shim;
mod unclaimed;
mod workspace_status;
