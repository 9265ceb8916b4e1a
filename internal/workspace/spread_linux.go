package workspace

import "golang.org/x/sys/unix"

// topDir is EXT4_TOPDIR_FL, see chattr(1) for T.
const topDir = 0x20000

// spread asks the file system to lay the folders made in dir apart from each
// other; one that cannot goes on as before.
//
// ext4 puts a folder near the one around it. Without a journal it does not use the
// inode of a removed file for 60 s, or for 300 s until that has reached the disk,
// and looks at each such inode near a new file before it takes another one. So
// beside the remains of one worktree of 50,000 files, the next can take 20 times
// the processor time.
func spread(dir string) {
	f, err := openFolder(dir)
	if err != nil {
		return
	}
	defer f.Close()
	if flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil && flags&topDir == 0 {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags|topDir))
	}
}
