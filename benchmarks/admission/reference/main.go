// The reference: a plain net/http webhook that decodes the review and answers with the same patch as ours.
// Usage: reference CERT KEY ADDRESS
package main

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
)

type expression struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values"`
}

type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID    string `json:"uid"`
	Object pod    `json:"object"`
}

type pod struct {
	Metadata struct {
		Labels          map[string]string `json:"labels"`
		Annotations     map[string]string `json:"annotations"`
		OwnerReferences []struct {
			UID        string `json:"uid"`
			Controller bool   `json:"controller"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Affinity    map[string]any `json:"affinity"`
		Tolerations []any          `json:"tolerations"`
		Spread      []any          `json:"topologySpreadConstraints"`
	} `json:"spec"`
}

type response struct {
	UID       string `json:"uid"`
	Allowed   bool   `json:"allowed"`
	PatchType string `json:"patchType,omitempty"`
	Patch     string `json:"patch,omitempty"`
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func spread(key string, hash string) map[string]any {
	selector := map[string]any{"matchLabels": map[string]string{
		"app": "web", "pod-template-hash": hash, "spotweave.dev/class": "spot"}}
	return map[string]any{"maxSkew": 20, "topologyKey": key, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}
}

func patch(object pod, uid string) []operation {
	labels, annotations := map[string]string{"spotweave.dev/class": "spot"}, map[string]string{}
	for key, value := range object.Metadata.Labels {
		labels[key] = value
	}
	for key, value := range object.Metadata.Annotations {
		annotations[key] = value
	}
	owner := ""
	for _, reference := range object.Metadata.OwnerReferences {
		if reference.Controller {
			owner = reference.UID
		}
	}
	annotations["spotweave.dev/slot"] = "11"
	annotations["spotweave.dev/decision"] = owner + "/" + uid
	annotations["spotweave.dev/reason"] = "slot 11 is spot (spot-ratio 70%, min-on-demand 1)"
	annotations["controller.kubernetes.io/pod-deletion-cost"] = "-11"
	class := expression{"node.kubernetes.io/capacity", "In", []string{"spot"}}
	pool := []expression{class,
		{"topology.kubernetes.io/zone", "In", []string{"zone-a"}},
		{"node.kubernetes.io/instance-type", "In", []string{"m5.large"}}}
	affinity := map[string]any{"nodeAffinity": map[string]any{
		"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{
			"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []expression{class}}}},
		"preferredDuringSchedulingIgnoredDuringExecution": []any{
			map[string]any{"weight": 100, "preference": map[string]any{"matchExpressions": pool}}}}}
	toleration := map[string]string{"key": "node.kubernetes.io/capacity", "operator": "Equal", "value": "spot"}
	hash := object.Metadata.Labels["pod-template-hash"]
	return []operation{
		{"add", "/metadata/labels", labels},
		{"add", "/metadata/annotations", annotations},
		{"add", "/spec/affinity", affinity},
		{"add", "/spec/tolerations", append(object.Spec.Tolerations, toleration)},
		{"add", "/spec/topologySpreadConstraints", append(object.Spec.Spread,
			spread("kubernetes.io/hostname", hash), spread("topology.kubernetes.io/zone", hash))},
	}
}

func mutate(writer http.ResponseWriter, call *http.Request) {
	body, err := io.ReadAll(call.Body)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	var asked review
	if err := json.Unmarshal(body, &asked); err != nil || asked.Request == nil {
		http.Error(writer, "malformed", http.StatusBadRequest)
		return
	}
	operations, err := json.Marshal(patch(asked.Request.Object, asked.Request.UID))
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	answer, err := json.Marshal(review{APIVersion: asked.APIVersion, Kind: asked.Kind, Response: &response{
		UID: asked.Request.UID, Allowed: true, PatchType: "JSONPatch", Patch: base64.StdEncoding.EncodeToString(operations)}})
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	_, _ = writer.Write(answer)
}

func main() {
	http.HandleFunc("/mutate", mutate)
	log.Fatal(http.ListenAndServeTLS(os.Args[3], os.Args[1], os.Args[2], nil))
}
