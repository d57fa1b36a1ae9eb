//! What goes wrong on machines: offwake is killed, stopped, crowded and starved, and so is whom it looks at.
//! Whatever comes of it is true, and what is lost is counted.

mod hung_output;
mod late_end;
mod machine;
mod nfs;
mod own;
mod own_file;
mod own_threads;
mod own_threads_of_top;
mod power;
mod silent;
mod targets;
mod unread_terminal;
