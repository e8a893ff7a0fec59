package kafka

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// UpdateFeatures (key 57), versions 0 to 2 (KIP-584).
//
//	v1  the kind of change is named; validate only
//	v2  no results of single features
//
// As since Kafka 4.0, a request changes all or nothing in every version: one change
// that cannot be made is the error of the whole answer, which then has no results.
// The levels of features belong to the version of the program: asking for the one
// in force is granted and changes nothing, any other is refused.

// Kinds of change.
const (
	upgradeOnly     = 1
	safeDowngrade   = 2
	unsafeDowngrade = 3
)

func (c *conn) updateFeatures(r *request, req *kmsg.UpdateFeaturesRequest) kmsg.Response {
	s := c.srv
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	times := map[string]int{}
	for i := range req.FeatureUpdates {
		times[req.FeatureUpdates[i].Feature]++
	}
	for i := range req.FeatureUpdates {
		u := &req.FeatureUpdates[i]
		err := changeFeature(u, r.version)
		if times[u.Feature] > 1 {
			err = refuse(kerr.InvalidRequest, "feature %q is named more than once", u.Feature)
		}
		if err != nil {
			resp.ErrorCode, resp.ErrorMessage = s.fail(fmt.Errorf("nothing was changed: %w", err))
			resp.Results = nil
			return resp
		}
		if r.version < 2 {
			out := kmsg.NewUpdateFeaturesResponseResult()
			out.Feature = u.Feature
			resp.Results = append(resp.Results, out)
		}
	}
	return resp
}

// changeFeature says what becomes of one change, in Kafka's order of checks.
func changeFeature(u *kmsg.UpdateFeaturesRequestFeatureUpdate, version int16) error {
	kind := u.UpgradeType
	if version == 0 {
		if kind = upgradeOnly; u.AllowDowngrade {
			kind = safeDowngrade
		}
	}
	level, all := u.MaxVersionLevel, features()
	is := slices.IndexFunc(all, func(f feature) bool { return f.name == u.Feature })
	served := int16(0)
	if is >= 0 {
		served = all[is].level
	}
	switch {
	case kind < upgradeOnly || kind > unsafeDowngrade:
		return refuse(kerr.InvalidUpdateVersion, "feature %s: kind of change %d is unknown", u.Feature, kind)
	case is < 0:
		return refuse(kerr.InvalidUpdateVersion, "this node has no feature %q: it has %v", u.Feature, all)
	case level == served:
		return nil
	case level < 0 || level > served:
		return refuse(kerr.InvalidUpdateVersion, "feature %s: level %d is not served, the highest is %d", u.Feature, level, served)
	case kind == upgradeOnly:
		return refuse(kerr.InvalidUpdateVersion, "feature %s: level %d is below %d, and the request allows no downgrade", u.Feature, level, served)
	}
	return refuse(kerr.FeatureUpdateFailed, "feature %s stays at level %d: it goes with the version of the program", u.Feature, served)
}
