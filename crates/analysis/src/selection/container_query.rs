//! What `--container` asks for.

/// A container, or a part of a pod, by what people call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerQuery {
    /// A container by its name, or by the first digits of its id.
    Container(String),
    /// A Kubernetes pod, by its name or unique id; or one of its containers.
    Pod {
        /// The pod.
        pod: String,
        /// The name that the container has in it; none for all of them.
        container: Option<String>,
    },
}

impl ContainerQuery {
    /// Parses `NAME`, `ID-PREFIX` and `pod/NAME[/CONTAINER]`. None if the text is anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let Some(pod) = text.strip_prefix("pod/") else {
            return (!text.is_empty()).then(|| Self::Container(text.to_owned()));
        };
        let (pod, container) = match pod.split_once('/') {
            None => (pod, None),
            Some((pod, container)) => (pod, Some(container)),
        };
        let is_whole = !pod.is_empty() && container.is_none_or(|name| !name.is_empty());
        is_whole.then(|| Self::Pod { pod: pod.to_owned(), container: container.map(str::to_owned) })
    }
}

impl std::fmt::Display for ContainerQuery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Container(name) => write!(f, "container {name}"),
            Self::Pod { pod, container: None } => write!(f, "pod {pod}"),
            Self::Pod { pod, container: Some(name) } => write!(f, "container {name} of pod {pod}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ContainerQuery;

    #[test]
    fn a_name_an_id_or_a_pod_is_meant() {
        let container = |name: &str| Some(ContainerQuery::Container(name.to_owned()));
        let pod = |pod: &str, container: Option<&str>| {
            let container = container.map(str::to_owned);
            Some(ContainerQuery::Pod { pod: pod.to_owned(), container })
        };
        for (text, expected) in [
            ("web", container("web")),
            ("4f1c", container("4f1c")),
            ("pods", container("pods")),
            ("pod", container("pod")),
            ("pod/cart-7d9f", pod("cart-7d9f", None)),
            ("pod/cart-7d9f/web", pod("cart-7d9f", Some("web"))),
            ("pod/a/b/c", pod("a", Some("b/c"))),
            ("", None),
            ("pod/", None),
            ("pod//web", None),
            ("pod/cart/", None),
        ] {
            assert_eq!(ContainerQuery::parse(text), expected, "{text}");
        }
    }
}
