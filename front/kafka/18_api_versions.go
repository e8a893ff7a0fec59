package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ApiVersions (key 18), versions 0 to 4.
//
//	v3  flexible but for the answer's header; client name and version are
//	    checked; features (KIP-511, KIP-584)
//	v4  a supported feature may begin at 0 (KIP-1022)
//
// A version above those is answered with version 0 and UNSUPPORTED_VERSION.
// Clients may leave ApiVersions out altogether.
//
// The feature transaction.version is not there: without it clients name the
// partitions of a transaction before they write (AddPartitionsToTxn).

// feature is something that clients turn on when it is in force.
type feature struct {
	name  string
	level int16 // the highest, which is in force
}

// features returns all there are: KIP-848's groups and the share groups of KIP-932.
func features() []feature { return []feature{{"group.version", 1}, {"share.version", 1}} }

func (c *conn) apiVersions(r *request, req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	if r.version >= 3 && !(validSoftware(req.ClientSoftwareName) && validSoftware(req.ClientSoftwareVersion)) {
		resp.ErrorCode = c.srv.code(kerr.InvalidRequest)
		return resp
	}
	for _, a := range c.srv.apis {
		if a != nil {
			resp.ApiKeys = append(resp.ApiKeys, versionsOf(a))
		}
	}
	for _, f := range features() {
		addFeature(resp, r.version, f)
	}
	resp.FinalizedFeaturesEpoch = 1
	return resp
}

// addFeature says that a feature is there and in force.
func addFeature(resp *kmsg.ApiVersionsResponse, version int16, is feature) {
	f := kmsg.NewApiVersionsResponseSupportedFeature()
	f.Name, f.MinVersion, f.MaxVersion = is.name, 0, is.level
	if version < 4 {
		f.MinVersion = 1 // older clients take 0 for an error
	}
	resp.SupportedFeatures = append(resp.SupportedFeatures, f)
	done := kmsg.NewApiVersionsResponseFinalizedFeature()
	done.Name, done.MinVersionLevel, done.MaxVersionLevel = is.name, is.level, is.level
	resp.FinalizedFeatures = append(resp.FinalizedFeatures, done)
}

// versionsUnsupported is the answer to a version that is not known: the client
// comes down to one that is.
func (t apiTable) versionsUnsupported() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	resp.ApiKeys = append(resp.ApiKeys, versionsOf(t[keyAPIVersions]))
	return resp
}

func versionsOf(a *api) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = a.key, a.advertise, a.max
	return k
}

// validSoftware applies KIP-511's rule for names and versions of clients:
// letters, digits, "-" and ".", beginning and ending with a letter or digit.
func validSoftware(s string) bool {
	for i := range len(s) {
		c := s[i]
		word := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !word && (c != '-' && c != '.' || i == 0 || i == len(s)-1) {
			return false
		}
	}
	return s != ""
}
