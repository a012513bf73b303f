package firewall

import (
	"context"
)

// Check reports whether the rules that isolate stacks are in place. It changes none: the
// error says why they could not be put in place.
func (f *Firewall) Check(ctx context.Context) (inPlace bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.checkHere(ctx); err != nil {
		return false, err
	}
	inPlace = true
	for _, fam := range f.families {
		there, err := fam.check(ctx)
		if err != nil {
			return false, err
		}
		inPlace = inPlace && there
	}
	return inPlace, nil
}

// check reports whether the fixed rules are in place, and has the program try to set them
// where they are not.
func (f *family) check(ctx context.Context) (inPlace bool, err error) {
	found, err := f.read(ctx)
	if err != nil || f.inPlace(found) {
		return err == nil, err
	}
	_, err = runProgram(ctx, f.script(f.set(found)), f.restore, "--noflush", "--test", "--wait", "10")
	return false, err
}
