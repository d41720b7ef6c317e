{{- define "spotweave.image" -}}
{{ .Values.image.repository }}{{ with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* What gives members of gangs their gate: policy, webhook, or nothing. */}}
{{- define "spotweave.gate" -}}
{{- if .Values.gangs.enabled -}}
{{- if ne .Values.gangs.gate "auto" }}{{ .Values.gangs.gate }}
{{- else if semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version }}policy
{{- else }}webhook
{{- end }}
{{- end }}
{{- end }}

{{- /* Replicas of a program: as set, else 2, or 3 with high availability. */}}
{{- define "spotweave.replicas" -}}
{{- $root := index . 0 }}
{{- $set := get $root.Values.replicas (index . 1) }}
{{- if kindIs "invalid" $set }}{{ ternary 3 2 $root.Values.highAvailability }}{{ else }}{{ $set }}{{ end }}
{{- end }}

{{- /* The ConfigMap's config.yaml. What `configuration` says wins over `presets`. */}}
{{- define "spotweave.configuration" -}}
{{- $own := dict "classes" .Values.presets }}
{{- if .Values.gangs.enabled }}{{ $_ := set $own "gangs" (dict "enabled" true) }}{{ end }}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.configuration)) }}
{{- end }}
