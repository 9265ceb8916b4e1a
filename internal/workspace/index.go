package workspace

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// git compares a file with what the index says of it to the second. So it reads
// again, at each look, every file that was written in the second in which its
// index was, or later: it may have changed since without a sign. In a worktree
// just made that can be each file there is. The index holds nanoseconds, too, and
// a change leaves its mark in them (ctime, which no program sets); so with these,
// only the files are read that changed.
//
// This is about indexes that no agent can write, and counts on no change between
// the moment when a file was described and that when its index was last written.

// copyIndex copies a git index with its modification time: git tells by it
// which files may have changed in the same clock tick as the index was written.
func copyIndex(from, to string) error {
	in, info, err := openBounded(from, maxIndex)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, maxIndex))
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

// unhide clears in a copied index the marks by which git takes a file of the folder
// tree for unchanged without a look (assume-unchanged, skip-worktree): they hide what
// a job does to it, and a job may have set them. With sparse, those of files that are
// not there stay. An index of a form unknown here is removed, so that every file is
// read.
func unhide(index, tree string, sparse bool, sum func() hash.Hash) error {
	info, err := os.Stat(index)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(index)
	if err != nil {
		return err
	}
	const assumeUnchanged, skipWorktree = 0x80, 0x40 // in the first byte of either field
	h, hidden := sum(), false
	ok := eachEntry(b, h.Size(), func(e *indexEntry) {
		if e.flags[0]&assumeUnchanged != 0 {
			e.flags[0] &^= assumeUnchanged
			hidden = true
		}
		if len(e.moreFlags) == 0 || e.moreFlags[0]&skipWorktree == 0 {
			return
		}
		if _, err := os.Lstat(filepath.Join(tree, string(e.name))); sparse && err != nil {
			return
		}
		e.moreFlags[0] &^= skipWorktree
		hidden = true
	})
	if !ok {
		return os.Remove(index)
	}
	if !hidden {
		return nil
	}
	seal(b, h)
	if err := os.WriteFile(index, b, 0o600); err != nil {
		return err
	}
	return os.Chtimes(index, info.ModTime(), info.ModTime())
}

// seal writes the hash of an index at its end.
func seal(b []byte, h hash.Hash) {
	rest := b[len(b)-h.Size():]
	if bytes.Equal(rest, make([]byte, len(rest))) { // index.skipHash is set
		return
	}
	h.Write(b[:len(b)-len(rest)])
	h.Sum(rest[:0])
}

// maxIndex bounds an index that an agent could write, in bytes: one of several
// million files is smaller.
const maxIndex = 512 << 20

// beyond is the last second that every file system can hold.
var beyond = time.Unix(1<<31-1, 0)

// believe lets git take every file of the index for unchanged that looks so.
func believe(index string) error { return os.Chtimes(index, beyond, beyond) }

// hash returns the hash that the indexes of a repository end with. r may be nil.
func (r *repo) hash() hash.Hash {
	if r != nil && r.Format == "sha256" {
		return sha256.New()
	}
	return sha1.New()
}

// copyForLook copies the index of the start for a comparison with the folder
// tree. marked says that the files of which the
// second does not tell are marked if they changed, so that the copy can be
// believed; an index of a form unknown here is copied as it is.
func copyForLook(from, to, tree string, sum func() hash.Hash) (marked bool, err error) {
	info, err := os.Stat(from)
	if err != nil {
		return false, err
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return false, err
	}
	marked = smudge(b, tree, info.ModTime(), sum)
	if err := os.WriteFile(to, b, 0o600); err != nil {
		return false, err
	}
	return marked, os.Chtimes(to, info.ModTime(), info.ModTime())
}

// smudge marks, as git itself does, the entries of an index of which the second
// cannot tell whether their files have changed since it was written, and the
// nanoseconds do not say that they have not. It reports whether it could.
func smudge(b []byte, tree string, written time.Time, sum func() hash.Hash) bool {
	h := sum()
	var marked [][]byte
	ok := eachEntry(b, h.Size(), func(e *indexEntry) {
		const file, link = 0o100000, 0o120000
		if kind := e.mode &^ 0o7777; kind != file && kind != link || e.mtime.Unix() < written.Unix() && e.ctime.Unix() < written.Unix() {
			return
		}
		var now unix.Stat_t
		err := unix.Lstat(filepath.Join(tree, string(e.name)), &now)
		if err != nil || !e.mtime.Before(written) || !e.ctime.Before(written) ||
			!e.mtime.Equal(time.Unix(now.Mtim.Unix())) || !e.ctime.Equal(time.Unix(now.Ctim.Unix())) ||
			e.inode != uint32(now.Ino) || e.size != uint32(now.Size) {
			marked = append(marked, e.sizeField)
		}
	})
	if !ok {
		return false
	}
	for _, size := range marked {
		clear(size)
	}
	if len(marked) > 0 {
		seal(b, h)
	}
	return true
}

// indexEntry is what an index says of a file.
type indexEntry struct {
	name         []byte // until the next entry is read
	mtime, ctime time.Time
	mode         uint32
	inode, size  uint32 // the low 32 bits
	sizeField    []byte // where size stands
	flags        []byte // the two bytes of flags
	moreFlags    []byte // those of version 3 and later, if the entry has them
}

// eachEntry reads an index of the versions 2 to 4 whose hashes have that many
// bytes. It reports whether it could, to the end. See gitformat-index(5).
func eachEntry(b []byte, hash int, do func(*indexEntry)) bool {
	const head, stat = 12, 40
	if len(b) < head+hash || string(b[:4]) != "DIRC" {
		return false
	}
	body := b[:len(b)-hash]
	version, count := binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:])
	if version < 2 || version > 4 {
		return false
	}
	var name []byte
	at := head
	for range count {
		flags := at + stat + hash
		if flags+2 > len(body) {
			return false
		}
		word := func(i int) uint32 { return binary.BigEndian.Uint32(body[at+4*i:]) }
		e := indexEntry{
			ctime: time.Unix(int64(word(0)), int64(word(1))), mtime: time.Unix(int64(word(2)), int64(word(3))),
			inode: word(5), mode: word(6), size: word(9), sizeField: body[at+36 : at+40], flags: body[flags : flags+2],
		}
		start := flags + 2
		if extended := binary.BigEndian.Uint16(body[flags:])&0x4000 != 0; extended {
			start += 2
		}
		if start > len(body) {
			return false
		}
		e.moreFlags = body[flags+2 : start]
		kept := 0 // of the name before
		if version == 4 {
			strip, n := varint(body[start:])
			if n == 0 || strip > len(name) {
				return false
			}
			kept, start = len(name)-strip, start+n
		}
		length := bytes.IndexByte(body[start:], 0)
		if length < 0 {
			return false
		}
		name = append(name[:kept], body[start:start+length]...)
		end := start + length + 1
		if version < 4 { // 1 to 8 zeros, so that its length is a multiple of 8
			end = at + (start+length-at+8)&^7
		}
		if end > len(body) {
			return false
		}
		e.name = name
		do(&e)
		at = end
	}
	return true
}

// varint reads a number as git writes it before the names of version 4; n is 0 if
// there is none.
func varint(b []byte) (value, n int) {
	for i, c := range b {
		if i > 4 {
			return 0, 0
		}
		if i > 0 {
			value++
		}
		value = value<<7 | int(c&0x7f)
		if c < 0x80 {
			return value, i + 1
		}
	}
	return 0, 0
}
