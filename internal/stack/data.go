package stack

import (
	"fmt"
	"maps"
	"time"
)

// MaxDataEntries is how many files and folders may replace a service's data.
const MaxDataEntries = 1_000_000

// CheckData returns an error unless the data of a service can be replaced: NotFound for an
// unknown service, and a Conflict if it has none.
func (s *Stack) CheckData(service string, now time.Time) error {
	return s.checkData(service, now, false)
}

// CheckDataRead is CheckData for data that is to be read, which for that of a database its process
// must run.
func (s *Stack) CheckDataRead(service string, now time.Time) error {
	return s.checkData(service, now, true)
}

func (s *Stack) checkData(service string, now time.Time, read bool) error {
	svc := s.Service(service)
	switch {
	case svc == nil:
		return s.noService(service)
	case s.Due(now), s.Status == Expired:
		return errExpired
	case s.Status == Building, s.Deploying != 0:
		return &Error{
			Kind: Conflict, RetryAfter: busyRetry,
			Detail: "a build of this stack is running; wait for it with GET /v0/stacks/" + s.ID + "?wait=true, then try again",
		}
	case svc.Spec.IsStatic():
		return NewError(Conflict, service+" is a static site: it has no data")
	case read && s.Status != Live && svc.Spec.Database() != nil:
		return NewError(Conflict, fmt.Sprintf("the stack is %s, so no process has its data; deploy a source that works, then try again", s.Status))
	}
	return nil
}

// DataFile returns the name of a file with the data of a service, and its media type: a tar.gz,
// or the dump of a database.
func (s *Stack) DataFile(service string) (name, mediaType string) {
	name = s.Name + "-" + service
	if svc := s.Service(service); svc != nil && svc.Spec.Database() != nil {
		return name + "." + svc.Spec.Database().Dumped, "application/octet-stream"
	}
	return name + "-data.tar.gz", "application/gzip"
}

// HaltForData records that the process of a service ends for a change or a copy of its
// data. DataReplaced or RestartedOnRequest ends that.
func (s *Stack) HaltForData(service string) error {
	svc, err := s.served(service)
	if err == nil {
		svc.Status, svc.InPlace = Restarting, true
	}
	return err
}

// UseData makes another data volume, of so many bytes, that of a service.
func (s *Stack) UseData(service string, volume int, bytes int64) {
	s.DataVolumes = maps.Clone(s.DataVolumes)
	if s.DataVolumes == nil {
		s.DataVolumes = map[string]int{}
	}
	s.DataVolumes[service] = volume
	s.Disk.SetData(service, bytes)
}

// DataReplaced is ReplacedOnRequest for a process that has another data volume, of so many
// bytes.
func (s *Stack) DataReplaced(service string, generation, replaced, volume int, bytes int64) ([]Event, error) {
	events, err := s.ReplacedOnRequest(service, generation, replaced)
	if err != nil {
		return nil, err
	}
	s.Service(service).InPlace = false
	s.UseData(service, volume, bytes)
	return events, nil
}
